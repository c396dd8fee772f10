"""What tests share: tiny rank programs, hand-written fakes, leak checks."""
