"""What turns features into encoder frames."""
