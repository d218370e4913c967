"""Images: which there are, how they are read, checked and fed to training."""
