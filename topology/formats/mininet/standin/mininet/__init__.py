"""Records what a Mininet program builds, under the names of the real package; see each module."""
