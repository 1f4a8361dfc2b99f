"""`python -m bench.autoscaling`."""

from bench.autoscaling.cli import main

if __name__ == "__main__":
    main()
