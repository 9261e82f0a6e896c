"""Records: frozen, typed, without behaviour beyond what follows from their own fields."""
