"""What tests of Perdure, and of its adapters, build on."""
