"""One module for each product that people come from: reads its home, writes nothing."""
