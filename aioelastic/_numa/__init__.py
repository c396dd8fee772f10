"""Which CPUs a rank is bound to: the machine as sysfs shows it, its accelerators, and the choice among its CPUs."""
