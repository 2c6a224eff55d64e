"""What fit returns: draws, weights, evidence, predictions, a summary in words, files."""
