"""Operating-system processes: descriptions, identities, process trees and signals."""
