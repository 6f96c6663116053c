"""What the end-to-end tests on a real Kubernetes are written with."""
