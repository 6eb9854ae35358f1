"""Who carries messages. An engine has one method; the coordinator and the sites are the same code in all of them."""
