"""Mathematics of releases: noise schemes, the adversary's view, accounting, plans and bounded statistics. No input or
output.
"""
