"""One file per question: each experiment measures models under equal budgets and says what it found."""
