"""One store a file."""
