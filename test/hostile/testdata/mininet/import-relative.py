from . import secrets_of_the_neighbour
