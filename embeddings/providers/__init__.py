"""One file a provider. Each is imported at the first call to it, so an unused one needs neither its package nor its key."""
