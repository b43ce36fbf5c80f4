"""One file a provider. Each is imported at the first call to it, and imports its SDK there; nobody imports it directly:
`interlock.clients.registry.provider_class(key)` finds it."""
