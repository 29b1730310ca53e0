"""One folder per question: each measures models under equal budgets and says what that means."""
