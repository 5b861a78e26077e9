"""RPCs: deadlines, cancellation, retries and the translation of statuses into errors."""
