"""The version of this source: what reports and ledger entries say."""

VERSION = "0.3.0.dev0"
