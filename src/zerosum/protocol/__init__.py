"""What travels between coordinator and sites, and what both sides derive from a plan."""
