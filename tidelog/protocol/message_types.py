"""The declarations of all messages under one name, for annotations.

Owns nothing. Invariant: it is empty when the code runs, because it would import every declaration.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.protocol.messages.acls import *
    from tidelog.protocol.messages.admin import *
    from tidelog.protocol.messages.client_quotas import *
    from tidelog.protocol.messages.cluster_admin import *
    from tidelog.protocol.messages.console import *
    from tidelog.protocol.messages.consumer_groups import *
    from tidelog.protocol.messages.fetch import *
    from tidelog.protocol.messages.group_records import *
    from tidelog.protocol.messages.groups import *
    from tidelog.protocol.messages.metadata import *
    from tidelog.protocol.messages.produce import *
    from tidelog.protocol.messages.share_fetch import *
    from tidelog.protocol.messages.share_group_state import *
    from tidelog.protocol.messages.share_groups import *
    from tidelog.protocol.messages.share_records import *
    from tidelog.protocol.messages.structs import *
    from tidelog.protocol.messages.telemetry import *
    from tidelog.protocol.messages.topics import *
    from tidelog.protocol.messages.transactions import *
    from tidelog.protocol.messages.users import *
