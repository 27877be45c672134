"""What Perdure is, as pure rules: nothing here does input or output, reads a clock or draws a number."""
