"""The version of this source, which reports and ledger entries record."""

VERSION = "0.3.0.dev0"
