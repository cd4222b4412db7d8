"""The language between stages: frozen dataclasses that every stage speaks and that know no stage."""
