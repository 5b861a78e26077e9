"""Programs of many kernel calls: their plans, control flow, transformations and derivatives."""
