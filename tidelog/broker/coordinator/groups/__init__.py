"""Consumer groups of the classic protocol: members, generations, assignments."""
