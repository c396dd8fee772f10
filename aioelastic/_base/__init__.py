"""Words every floor uses: ranks, signals, defaults and aliases."""
