"""Typed reading of the outside world. Each maps foreign errors to `SourceAbsent` or `SourceFailed`."""
