"""What the tests share: `tests.helpers` has it, and no test file imports another."""
