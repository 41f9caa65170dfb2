"""`python -m whyformer`."""

from whyformer.cli import main

if __name__ == "__main__":
    main()
