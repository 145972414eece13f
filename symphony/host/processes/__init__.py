"""Processes of the operating system: descriptions, identities, process trees and signals."""
