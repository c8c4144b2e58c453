# frozen_string_literal: true

module Penstock
  # The result of {Consumer#close}.
  #
  # - `in_time`: true: everything was done in time. Pending offsets were committed, the consumer left the group, all
  #   resources are released. If the group has refused the commit, that is the event "offsets.commit_failed", and a line in the
  #   log. false: the time ran out, and closing continues by itself.
  # - `left_group`: true: the consumer had subscribed, and the group's coordinator has answered that it leaves. false: it had
  #   subscribed, and the time ran out, the coordinator could not be reached, or the member is static (`group.instance.id`),
  #   which never leaves. The group may notice only after `session.timeout.ms`. nil: it was in no group.
  ConsumerCloseReport = Struct.new(:in_time, :left_group) do
    include AsJson

    # @return [Boolean] whether closing is complete
    def complete? = in_time

    # (see AsJson#as_json)
    def as_json(_options = nil) = json(**to_h)
  end
end
