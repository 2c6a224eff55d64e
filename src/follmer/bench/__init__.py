"""`follmer bench`: known targets, the default fit, and the methods a user would try beside it."""
