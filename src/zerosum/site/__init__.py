"""What a site does before anything leaves it."""
