"""From YAML text to checked objects, with every problem at its line and column."""
