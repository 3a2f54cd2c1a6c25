"""What only the bundled model's recipe needs: speech of Flite, clips of public repositories."""
