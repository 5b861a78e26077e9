"""What every kernel is made of: the class `Kernel`, types and layouts, checks of calls, blocks, element types."""
