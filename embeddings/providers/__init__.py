"""One file a provider, imported at the first call to it: an unused one needs neither its package nor its key."""
