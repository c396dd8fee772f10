"""What the pytest plugin does once its fixture is used."""
