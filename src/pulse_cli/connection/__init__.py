"""Where pulsed is and who asks: settings, the file that keeps them, and the client made from them."""
