import static java.util.Map.entry;

import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams: numbers the orders of each customer. The state's changelog is a compacted topic.
 * The arguments are its name and the guarantee, at_least_once or exactly_once_v2.
 */
public class Billing {
    public static void main(String[] arguments) {
        var name = arguments[0];
        var settings = new Properties();
        settings.putAll(Map.ofEntries(
            entry("application.id", name),
            entry("processing.guarantee", arguments[1]),
            entry("bootstrap.servers", System.getenv("KAFKA")),
            entry("state.dir", "state"),
            entry("commit.interval.ms", 500),
            entry("statestore.cache.max.bytes", 0)));
        var text = Serdes.String();
        var builder = new StreamsBuilder();
        builder.stream(name + "-orders", Consumed.with(text, text))
            .groupByKey()
            .aggregate(() -> "0", (customer, order, last) -> {
                int number = Integer.parseInt(last.replaceAll(".*: |\\D*$", "")) + 1;
                return "{\"order\": " + order + ", \"number\": " + number + "}";
            }, Materialized.with(text, text))
            .toStream()
            .to(name + "-bills", Produced.with(text, text));
        var streams = new KafkaStreams(builder.build(), settings);
        var leave = CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leave)));
        streams.start();
    }
}
