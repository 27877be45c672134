"""llama.cpp, each model in a child process of its own."""
