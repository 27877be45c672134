"""The use-cases, one verb per file. Knows the rules of `domain` and the doors in `ports`, no technology."""
