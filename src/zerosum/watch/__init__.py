"""Local web page with running and past studies, for a coordinator or a site (`zerosum watch`)."""
