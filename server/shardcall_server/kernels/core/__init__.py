"""Parts of every kernel: the class `Kernel`, types and layouts, checks of calls, blocks, element types."""
