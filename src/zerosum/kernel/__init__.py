"""What is released and what it costs: pure mathematics, no input or output."""
