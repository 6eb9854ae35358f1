"""Engines carry messages. An engine has one method; the coordinator and the sites are the same code
with all of them.
"""
