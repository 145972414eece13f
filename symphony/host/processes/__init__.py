"""Processes of the operating system: their identity, their trees and how they are started."""
