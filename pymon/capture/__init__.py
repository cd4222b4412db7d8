"""Deep evidence, taken once and bounded: a request goes in, a receipt for each process comes out."""
