"""Networks and their surroundings, in plain torch; the Triton programs in ``models`` use them."""
