"""A local page of running and past studies, for a coordinator or for a site: `zerosum watch`."""
